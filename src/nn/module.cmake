# The tokenizer's patterns and normalisation, and JSON.
pkg_check_modules(NN REQUIRED IMPORTED_TARGET libpcre2-8>=10.40 libutf8proc)
list(APPEND WW_SYSTEM_LIBS PkgConfig::NN)
