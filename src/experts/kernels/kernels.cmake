# Each ISA level's kernels have their own flags; all other files are built for the architecture's baseline.
# kernel_table.cpp picks at run time.
set(epmoe_kernel_dir "${CMAKE_CURRENT_SOURCE_DIR}/src/experts/kernels")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set_source_files_properties("${epmoe_kernel_dir}/kernels_avx2.cpp" PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  set_source_files_properties("${epmoe_kernel_dir}/kernels_avx512.cpp" PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mf16c")
endif()
