# Reference values of the debiased lasso: R's glmnet for all lassos, the formula of hdi's lasso.proj
# (Dezeure, Buehlmann, Meier and Meinshausen 2015, equation 5) for the estimate and its standard error.
#   Rscript tests/reference/debiased_lasso.R > tests/reference/debiased_lasso.csv
library(glmnet)

n <- 60; p <- 90; penalty <- 0.08; node_penalty <- 0.15
# The same numbers in any language: fractions of squares modulo a prime.
i <- matrix(seq_len(n), n, p); j <- matrix(seq_len(p), n, p, byrow = TRUE)
x <- (((i * 31 + j * 17 + i * j * j) %% 1009) / 1009 - 0.5) * sqrt(12)
x[, -1] <- x[, -1] + 0.4 * x[, -p]
e <- ((seq_len(n)^2 * 11) %% 997) / 997 - 0.5
y <- x[, 1] - 0.7 * x[, 5] + 0.5 * x[, 40] + e

lasso <- function(x, y, at) {
  fit <- glmnet(x, y, lambda = at * c(8, 4, 2, 1), intercept = FALSE, standardize = FALSE, thresh = 1e-20, maxit = 1e7)
  as.vector(coef(fit, s = at)[-1])
}

b <- lasso(x, y, penalty)
r <- y - x %*% b
scale <- sqrt(mean(r^2))
out <- data.frame()
for (k in seq_len(p)) {
  z <- x[, k] - x[, -k] %*% lasso(x[, -k], x[, k], node_penalty)
  inner <- sum(z * x[, k])
  estimate <- sum(z * y) / inner - sum((t(z) %*% x[, -k]) * b[-k]) / inner
  out <- rbind(out, data.frame(
    lasso = b[k], params = estimate,
    nonrobust = scale * sqrt(sum(z^2)) / abs(inner), robust = sqrt(sum(z^2 * r^2)) / abs(inner)
  ))
}
write.csv(format(out, digits = 15), row.names = FALSE, quote = FALSE)
