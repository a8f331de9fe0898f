"""M-estimation from locally private examples by inverse Weierstrass transforms (IWPGLM)."""
