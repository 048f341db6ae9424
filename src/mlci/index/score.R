# Rscript weights.R admissions.csv scores.csv: admissions.csv has admission_id, icd_version, code (one row per code).
args <- commandArgs(TRUE); here <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)))
w <- read.csv(file.path(here, "weights.csv"), colClasses = c(code = "character"), check.names = FALSE)
p <- read.csv(file.path(here, "weights_curves.csv"), colClasses = c(outcome = "character"))
part <- function(what, name = "") p[p$part == what & p$outcome == name, ]
d <- read.csv(args[1], colClasses = c(code = "character"), na.strings = "")
d$code <- gsub("[^A-Z0-9]", "", toupper(d$code)); ids <- unique(d$admission_id); d <- d[!is.na(d$code) & d$code != "", ]
n <- tabulate(match(d$admission_id, ids), length(ids)); s <- data.frame(admission_id = ids, score = 0)
for (i in p$outcome[p$part == "ignored"]) d <- d[!startsWith(paste0(d$icd_version, ":", d$code), i), ]
rows <- sapply(part("depth")$x, function(k) match(paste(d$icd_version, substr(d$code, 1, k)), paste(w$icd_version, w$code)))
rows <- matrix(rows, nrow(d)); a <- match(d$admission_id, ids); none <- tabulate(a[rowSums(!is.na(rows)) == 0], length(ids))
pairs <- unique(na.omit(data.frame(a = rep(a, ncol(rows)), w = c(rows))))  # a beginning counts once in an admission
for (name in names(w)[-(1:4)]) {
  added <- tapply(w[[name]][pairs$w], factor(pairs$a, seq_along(ids)), sum, default = 0)
  x <- part("intercept", name)$y + part("unknown", name)$y * (none > 0) + added; k <- part("score", name)
  b <- findInterval(x, k$x, all.inside = TRUE); s$score <- s$score + k$y[b] + (diff(k$y) / diff(k$x))[b] * (x - k$x[b])
  for (f in list(list("risk", "risk_", plogis), list("expected", "expected_", c), list("expected, log", "expected_", exp)))
    if (nrow(q <- part(f[[1]], name))) s[[paste0(f[[2]], name)]] <- f[[3]](q$x + q$y * x)
}
known <- tabulate(a, length(ids)) - none; s$unknown_share <- 1 - known / n; write.csv(format(s, digits = 15), args[2], row.names = FALSE)
