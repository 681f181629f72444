# cmake -DOUT=FILE.h "-DFILES=A;B;..." -P tools/hash.cmake: a header with the SHA-256 of all of their contents.  Written
# only where it has changed, so that a file which was only touched rebuilds nothing.
set(all "")
foreach(file ${FILES})
	file(SHA256 ${file} hash)
	string(APPEND all "${hash}\n")
endforeach()
string(SHA256 hash "${all}")
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define WW_MAKERS_HASH \"${hash}\"\n" @ONLY)
