# The inner loops of the cpu backend, once for each vector width; which one runs is decided at run time.  Multiply-adds are
# contracted, so that all tiles of one table round alike.
set(WW_KERNEL_FLAGS -O3 -ffp-contract=fast -fno-math-errno -Wno-psabi)
set_source_files_properties(src/dev/cpu/kernels_base.c PROPERTIES COMPILE_OPTIONS "${WW_KERNEL_FLAGS}")
set_source_files_properties(src/dev/cpu/kernels_avx2.c PROPERTIES COMPILE_OPTIONS "${WW_KERNEL_FLAGS};-mavx2;-mfma")
set_source_files_properties(src/dev/cpu/kernels_avx512.c PROPERTIES COMPILE_OPTIONS
	"${WW_KERNEL_FLAGS};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mprefer-vector-width=512")
