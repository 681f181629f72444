# HTTP: frames of WebSockets by wslay; libmicrohttpd is loaded when a server is opened (src/serve/mhd.h), so only its
# header is needed.
find_library(LIBWSLAY wslay REQUIRED)
find_path(MICROHTTPD_INCLUDE microhttpd.h REQUIRED)
list(APPEND WW_SYSTEM_LIBS ${LIBWSLAY})
