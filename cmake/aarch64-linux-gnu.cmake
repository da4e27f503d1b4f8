# Cross build for AArch64: Debian's cross compiler, an unpacked arm64 root (scripts/arm.sh makes it; EPMOE_ARM_SYSROOT
# names it), and qemu-user to run the tests.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(EPMOE_ARM_SYSROOT "$ENV{EPMOE_ARM_SYSROOT}" CACHE PATH "Unpacked arm64 root")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES EPMOE_ARM_SYSROOT)
set(CMAKE_SYSROOT "${EPMOE_ARM_SYSROOT}")
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH "${EPMOE_ARM_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Libraries that others need (libopen-rte, libhwloc, …) are looked up here when linking.
string(APPEND CMAKE_EXE_LINKER_FLAGS_INIT
  " -Wl,-rpath-link,${EPMOE_ARM_SYSROOT}/usr/lib/aarch64-linux-gnu:${EPMOE_ARM_SYSROOT}/lib/aarch64-linux-gnu")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-L;${EPMOE_ARM_SYSROOT};-cpu;max)
# FindMPI cannot run the arm64 wrapper and would ask the host's: give it the answers.
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_CXX_SKIP_MPICXX ON)
set(_epmoe_mpi "${EPMOE_ARM_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi")
set(MPI_CXX_LIB_NAMES mpi CACHE STRING "")
set(MPI_mpi_LIBRARY "${_epmoe_mpi}/lib/libmpi.so" CACHE FILEPATH "")
set(MPI_CXX_HEADER_DIR "${_epmoe_mpi}/include" CACHE PATH "")
set(MPI_CXX_ADDITIONAL_INCLUDE_DIRS "" CACHE STRING "")
set(MPIEXEC_EXECUTABLE /usr/bin/mpiexec CACHE FILEPATH "")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${EPMOE_ARM_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
  "${EPMOE_ARM_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${EPMOE_ARM_SYSROOT}/usr/share/pkgconfig")
