# epmoe_add_test(NAME name SOURCES a.cpp … [RANKS 1 2 3 4] [TIMEOUT seconds] [THREADS n] [LABELS …])
# One executable; one ctest per rank count, "name.np3". Every launch is under `timeout -k`, and the program refuses
# to run in a world of another size than it was told.
find_package(GTest REQUIRED)
set(EPMOE_TEST_ENVIRONMENT
  "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe;OMPI_MCA_hwloc_base_binding_policy=none;PRTE_MCA_hwloc_default_binding_policy=none;OMPI_MCA_mpi_yield_when_idle=1;OMP_WAIT_POLICY=passive"
  CACHE STRING "Environment of MPI tests; the same as scripts/mpi_env.sh" FORCE)

function(epmoe_add_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT;THREADS" "SOURCES;RANKS;LABELS;LIBRARIES" ${ARGN})
  if(NOT T_RANKS)
    set(T_RANKS 1)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
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
    set_tests_properties(${T_NAME}.np${ranks} PROPERTIES TIMEOUT ${T_TIMEOUT} PROCESSORS ${processors}
      ENVIRONMENT "${EPMOE_TEST_ENVIRONMENT};OMP_NUM_THREADS=${T_THREADS}" LABELS "np${ranks};${T_LABELS}")
  endforeach()
endfunction()
