# Reads what privinf writes, with base R alone: results and releases (.npz) and the JSON of a result.
#
#   source("read_privinf.R")
#   fit <- read_privinf("result.npz")         # fit$header, fit$arrays; coefficients(fit)
#   fit <- read_privinf_json("result.json")   # fit$coefficients: one row a coefficient, as broom has it
#
# From a shell: Rscript read_privinf.R FILE prints the coefficients of a result, or the arrays of a release.
# What a result is warned of becomes a warning of R. The layout of the files is in docs/formats.md.

# ---- JSON: texts, numbers, lists; null is NA, objects are named lists; NaN and Infinity are numbers

parse_json <- function(text) {
  chars <- strsplit(enc2utf8(text), "", fixed = TRUE)[[1]]
  at <- 1L
  blanks <- function() while (at <= length(chars) && chars[at] %in% c(" ", "\n", "\t", "\r")) at <<- at + 1L
  take <- function(letter) {
    blanks()
    if (at > length(chars) || chars[at] != letter) stop("this is not JSON: ", letter, " is missing")
    at <<- at + 1L
  }
  hex <- function() {
    code <- strtoi(paste(chars[at + 1:4], collapse = ""), 16L)
    at <<- at + 4L
    code
  }
  escaped <- function() {
    at <<- at + 1L
    plain <- c(n = "\n", t = "\t", r = "\r", b = "\b", f = "\f")
    if (chars[at] %in% names(plain)) return(plain[[chars[at]]])
    if (chars[at] != "u") return(chars[at])
    code <- hex()
    if (code >= 0xD800 && code < 0xDC00) {  # two halves of one character
      at <<- at + 2L
      code <- 0x10000 + (code - 0xD800) * 0x400 + (hex() - 0xDC00)
    }
    intToUtf8(code)
  }
  text_of <- function() {
    take("\"")
    found <- character()
    while (chars[at] != "\"") {
      found[length(found) + 1L] <- if (chars[at] == "\\") escaped() else chars[at]
      at <<- at + 1L
    }
    at <<- at + 1L
    paste(found, collapse = "")
  }
  word <- function() {
    start <- at
    while (at <= length(chars) && grepl("[-+.0-9A-Za-z]", chars[at])) at <<- at + 1L
    found <- paste(chars[seq_len(at - start) + start - 1L], collapse = "")
    known <- list(`true` = TRUE, `false` = FALSE, `null` = NA, `NaN` = NaN, `Infinity` = Inf, `-Infinity` = -Inf)
    if (found %in% names(known)) return(known[[found]])
    number <- suppressWarnings(as.numeric(found))
    if (is.na(number)) stop("this is not JSON: ", found)
    number
  }
  several <- function(close, one) {
    at <<- at + 1L
    found <- list()
    blanks()
    while (chars[at] != close) {
      found <- one(found)
      blanks()
      if (chars[at] == ",") at <<- at + 1L else if (chars[at] != close) stop("this is not JSON: , is missing")
      blanks()
    }
    at <<- at + 1L
    found
  }
  value <- function() {
    blanks()
    if (chars[at] == "\"") return(text_of())
    if (chars[at] == "[") return(several("]", function(found) c(found, list(value()))))
    if (chars[at] != "{") return(word())
    several("}", function(found) {
      name <- text_of()
      take(":")
      found[[length(found) + 1L]] <- value()
      names(found)[length(found)] <- name
      found
    })
  }
  value()
}

# ---- arrays of NumPy

read_npy <- function(bytes) {
  if (!identical(bytes[1:8], as.raw(c(0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0)))) stop("this is no .npy 1.0")
  length_of_header <- readBin(bytes[9:10], "integer", size = 2L, signed = FALSE, endian = "little")
  header <- rawToChar(bytes[10L + seq_len(length_of_header)])
  kind <- sub(".*'descr': '([^']*)'.*", "\\1", header)
  inside <- sub(".*'shape': \\(([^)]*)\\).*", "\\1", header)
  shape <- as.integer(Filter(nzchar, trimws(strsplit(inside, ",")[[1]])))
  count <- prod(shape)
  body <- bytes[-seq_len(10L + length_of_header)]
  numbers <- function(what, size, ...) readBin(body, what, n = count, size = size, endian = "little", ...)
  values <- switch(substr(kind, 1, 2),
    "<f" = numbers("numeric", as.integer(substr(kind, 3, 3))),
    "|b" = as.integer(body[seq_len(count)]) == 1L,
    "|i" = numbers("integer", 1L),
    "|u" = numbers("integer", 1L, signed = FALSE),
    "<i" = , "<u" = whole_numbers(body, count, as.integer(substr(kind, 3, 3))),
    "<U" = texts(body, count, as.integer(substring(kind, 3))),
    stop("arrays of kind ", kind, " are not read")
  )
  # the last index runs fastest there, the first one here
  if (length(shape) < 2L) values else aperm(array(values, rev(shape)), rev(seq_along(shape)))
}

whole_numbers <- function(body, count, size) {
  if (size < 8L) return(readBin(body, "integer", n = count, size = size, endian = "little"))
  halves <- readBin(body, "integer", n = 2L * count, size = 4L, endian = "little")
  low <- halves[c(TRUE, FALSE)]
  ifelse(low < 0, low + 2^32, low) + 2^32 * halves[c(FALSE, TRUE)]  # doubles: exact up to 2^53
}

texts <- function(body, count, width) {
  if (width == 0L) return(character(count))
  codes <- matrix(readBin(body, "integer", n = count * width, size = 4L, endian = "little"), nrow = width)
  apply(codes, 2, function(one) intToUtf8(one[one > 0L]))
}

# ---- results and releases

read_privinf <- function(path) {
  members <- unzip(path, list = TRUE)
  bytes_of <- function(name) {
    connection <- unz(path, name, open = "rb")
    on.exit(close(connection))
    readBin(connection, "raw", n = members$Length[members$Name == name])
  }
  text <- rawToChar(bytes_of("manifest.json"))
  Encoding(text) <- "UTF-8"
  manifest <- parse_json(text)
  if (!identical(manifest$container, "privinf-container") || manifest$container_version > 1)
    stop(path, " is not a file of privinf that this reader knows")
  if (!manifest$format %in% c("privinf-results", "privinf-release") || manifest$version > 1)
    stop(path, " is of another format, or of a newer version: ", manifest$format)
  arrays <- lapply(setNames(names(manifest$arrays), names(manifest$arrays)),
                   function(name) read_npy(bytes_of(paste0(name, ".npy"))))
  found <- structure(list(format = manifest$format, header = manifest$header, arrays = arrays), class = "privinf")
  weak <- manifest$header$identification
  if (is.list(weak) && isTRUE(weak$weak))
    warning("identification is weak: normal intervals are not to be trusted", call. = FALSE)
  if (manifest$format == "privinf-results" && nzchar(manifest$header$weak_reason))
    warning("no standard errors: ", manifest$header$weak_reason, call. = FALSE)
  for (entry in if (is.list(manifest$header$report)) manifest$header$report$entries else manifest$header$entries)
    if (!isTRUE(entry$secure)) {
      warning("SIMULATION: the noise of a release came from a seed, or there was none", call. = FALSE)
      break
    }
  found
}

# One row a coefficient: estimate and standard error (NA where the noise leaves none). Intervals are in the JSON.
coef.privinf <- function(object, ...) {
  if (object$format != "privinf-results") stop("a release has no coefficients: object$arrays has what was sent")
  arrays <- object$arrays
  errors <- if (is.null(arrays$cov)) NA_real_ else sqrt(diag(as.matrix(arrays$cov)))
  estimate <- if (is.null(arrays$point)) arrays$params else arrays$point
  data.frame(term = unlist(object$header$names), estimate = as.vector(estimate), std_error = errors)
}

read_privinf_json <- function(path) {
  found <- parse_json(paste(readLines(path, encoding = "UTF-8", warn = FALSE), collapse = "\n"))
  if (!identical(found$format, "privinf-result")) stop(path, " is not the JSON of a fit: ", found$format)
  column <- function(name) sapply(found$coefficients, function(row) row[[name]])
  number <- function(name) suppressWarnings(as.numeric(column(name)))  # "inf" and "-inf" are numbers of R
  table <- data.frame(term = column("term"))
  for (name in setdiff(names(found$coefficients[[1]]), c("term", "weak"))) table[[name]] <- number(name)
  found$coefficients <- cbind(table, weak = as.logical(column("weak")))
  for (caution in found$cautions) warning(caution$kind, ": ", caution$text, call. = FALSE)
  if (nzchar(found$privacy$stamp)) warning(found$privacy$stamp, call. = FALSE)
  found
}

if (sys.nframe() == 0L && length(commandArgs(TRUE)) == 1L) {
  path <- commandArgs(TRUE)
  options(digits = 17)
  if (grepl("\\.json$", path)) {
    write.csv(read_privinf_json(path)$coefficients, row.names = FALSE)
  } else {
    fit <- read_privinf(path)
    if (fit$format == "privinf-results") {
      write.csv(coef(fit), row.names = FALSE)
    } else {
      for (name in names(fit$arrays)) {
        one <- fit$arrays[[name]]
        cat(name, "|", paste(if (is.null(dim(one))) length(one) else dim(one), collapse = " "), "|",
            format(as.vector(if (is.null(dim(one))) one else aperm(one)), digits = 17, trim = TRUE), "\n")
      }
    }
  }
}
