# Each ISA level's kernels have their own flags; all other files are built for the architecture's baseline.
# kernel_table.cpp picks at run time.
set(epmoe_kernel_dir "${CMAKE_CURRENT_SOURCE_DIR}/src/experts/kernels")
function(epmoe_kernel_flags level)
  foreach(part kernels probe)
    set_source_files_properties("${epmoe_kernel_dir}/${part}_${level}.cpp" PROPERTIES COMPILE_OPTIONS "${ARGN}")
  endforeach()
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  epmoe_kernel_flags(avx2 ${avx2})
  epmoe_kernel_flags(avx_vnni ${avx2} -mavxvnni)
  epmoe_kernel_flags(avx512 ${avx512})
  epmoe_kernel_flags(avx512_vnni ${avx512} -mavx512vnni)
  epmoe_kernel_flags(avx512_bf16 ${avx512} -mavx512vnni -mavx512bf16)
  epmoe_kernel_flags(avx512_bf16_vbmi ${avx512} -mavx512vnni -mavx512bf16 -mavx512vbmi)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  # g++ would load columns so early that not all sums of a tile stay in registers. scripts/arm_mca.sh counts spills.
  set(arm "$<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns;-fno-tree-pre>")
  epmoe_kernel_flags(neon ${arm})
  epmoe_kernel_flags(neon_dotprod ${arm} -march=armv8.2-a+dotprod)
  epmoe_kernel_flags(neon_i8mm_bf16 ${arm} -march=armv8.2-a+dotprod+i8mm+bf16)
  # SVE of a fixed length, so that tiles are arrays of registers; such a set runs at that length only.
  epmoe_kernel_flags(sve256_i8mm_bf16 ${arm} -march=armv8.2-a+sve+i8mm+bf16 -msve-vector-bits=256)
  epmoe_kernel_flags(sve512 ${arm} -march=armv8.2-a+sve -msve-vector-bits=512)
endif()
