"""The debiased lasso where every site has coefficients of its own."""
