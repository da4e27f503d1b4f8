# epmoe_add_test(NAME name SOURCES a.cpp … [RANKS 1 2 3 4] [TIMEOUT seconds] [THREADS n] [LABELS …])
# One executable; one ctest per rank count, "name.np3". Every launch is under `timeout -k`, and the program refuses
# to run in a world of another size than it was told.
find_package(GTest REQUIRED)
include(EpmoeTestSets)
# scripts/mpi_env.sh is the one place with the environment; here its lines "export NAME=value" become ctest's.
set(epmoe_mpi_env "${PROJECT_SOURCE_DIR}/scripts/mpi_env.sh")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${epmoe_mpi_env}")
file(STRINGS "${epmoe_mpi_env}" EPMOE_TEST_ENVIRONMENT REGEX "^export [A-Za-z_]+=")
list(TRANSFORM EPMOE_TEST_ENVIRONMENT REPLACE "^export " "")
if(NOT EPMOE_TEST_ENVIRONMENT)
  message(FATAL_ERROR "${epmoe_mpi_env} has no line \"export NAME=value\"")
endif()
if(EPMOE_SANITIZE STREQUAL "thread")
  # Calls that MPI makes cannot be judged, since its synchronisation is not instrumented. OpenMP's is known through
  # Archer, the tool that LLVM's libomp loads by itself in such a process.
  list(APPEND EPMOE_TEST_ENVIRONMENT "TSAN_OPTIONS=ignore_noninstrumented_modules=1:allocator_may_return_null=1")
elseif(EPMOE_SANITIZE)  # full stacks, so that suppressions of the MPI library's own leaks match
  list(APPEND EPMOE_TEST_ENVIRONMENT
    "ASAN_OPTIONS=fast_unwind_on_malloc=0"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/scripts/sanitizers/lsan.supp:print_suppressions=0"
    "UBSAN_OPTIONS=print_stacktrace=1")
endif()

function(epmoe_add_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT;THREADS" "SOURCES;RANKS;LABELS;LIBRARIES" ${ARGN})
  if(NOT T_RANKS)
    set(T_RANKS 1)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(CMAKE_CROSSCOMPILING_EMULATOR)  # slow, and more so on a busy machine
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 5")
  endif()
  if(NOT T_THREADS)
    set(T_THREADS 1)
  endif()
  add_executable(${T_NAME} ${T_SOURCES})
  target_link_libraries(${T_NAME} PRIVATE epmoe::epmoe epmoe_test_support GTest::gtest GTest::gmock fmt::fmt nlohmann_json::nlohmann_json ${T_LIBRARIES})
  target_include_directories(${T_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${T_NAME} PRIVATE EPMOE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  epmoe_compile_options(${T_NAME})
  foreach(ranks ${T_RANKS})
    math(EXPR kill_after "${T_TIMEOUT} - 5")
    add_test(NAME ${T_NAME}.np${ranks}
      COMMAND timeout -k 5 ${kill_after} ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
              ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${T_NAME}> --ranks=${ranks} ${MPIEXEC_POSTFLAGS})
    set(processors 1)
    if(ranks GREATER 1)
      set(processors 2)
    endif()
    epmoe_test_set_labels(set_labels ${T_NAME}.np${ranks} ${T_NAME})
    set_tests_properties(${T_NAME}.np${ranks} PROPERTIES TIMEOUT ${T_TIMEOUT} PROCESSORS ${processors}
      ENVIRONMENT "${EPMOE_TEST_ENVIRONMENT};OMP_NUM_THREADS=${T_THREADS}" LABELS "np${ranks};${set_labels};${T_LABELS}")
  endforeach()
endfunction()
