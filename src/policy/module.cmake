# libcurl is loaded when an HTTP policy is opened (src/policy/http/curl.c), so only its header is needed here.
find_path(CURL_INCLUDE curl/curl.h PATH_SUFFIXES x86_64-linux-gnu REQUIRED)
target_include_directories(ww_policy PRIVATE ${CURL_INCLUDE})
set_property(SOURCE src/policy/http/price.c APPEND PROPERTY OBJECT_DEPENDS ${CMAKE_SOURCE_DIR}/src/policy/prices.txt)
set_property(SOURCE src/policy/http/price.c APPEND PROPERTY
	COMPILE_DEFINITIONS WW_PRICES_FILE="${CMAKE_SOURCE_DIR}/src/policy/prices.txt")
# The cookbook says how long its tiles take: plans and the planner go by the same numbers.
target_include_directories(ww_policy PUBLIC ${CMAKE_SOURCE_DIR}/skills/cuda/include)
