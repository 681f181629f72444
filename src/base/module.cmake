# YAML: recipes and suites.
pkg_check_modules(FYAML REQUIRED IMPORTED_TARGET libfyaml)
list(APPEND WW_SYSTEM_LIBS PkgConfig::FYAML)
