# Task sets are compressed (set.c).
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
list(APPEND WW_SYSTEM_LIBS PkgConfig::ZSTD)
