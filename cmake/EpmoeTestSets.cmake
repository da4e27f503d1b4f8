# Covering sets: what runs where everything would take too long. A test in a set has its label ("ctest -L arm"), and the
# target "<set>_tests" builds just what the set needs. epmoe_check_test_sets refuses names that no test has.
set(EPMOE_TEST_SET_arm  # AArch64 under qemu-user, scripts/arm.sh
  core_test.np1
  memory_order_test.np1
  quantize_test.np1
  checkpoint.np1
  route_test.np1
  route_golden_test.np1
  experts_slots_test.np1
  experts_kernels_test.np1
  experts_native_test.np1
  experts_narrow_test.np1
  experts_bitwise_test.np1
  experts_same_bits_test.np1
  experts_special_test.np1
  experts_mutations_test.np1
  experts_covering_small_test.np1
  experts_reference_test.np1
  onednn_test.np1
  comm_units.np1
  comm_messages.np2
  exchange_plan_test.np1
  strategies_test.np2
  modular_kernel_test.np2
  modular_kernel_test.np4
  golden_test.np2
  apps.main_job.np2)
set(EPMOE_TEST_SET_dev  # AddressSanitizer and UndefinedBehaviorSanitizer
  core_test.np1
  quantize_test.np1
  observe_test.np1
  checkpoint.np1
  route_test.np1
  scripted_router_test.np1
  experts_slots_test.np1
  experts_kernels_test.np1
  experts_native_test.np1
  experts_narrow_test.np1
  experts_bitwise_test.np1
  experts_same_bits_test.np1
  experts_special_test.np1
  experts_mutations_test.np1
  experts_covering_small_test.np1
  experts_reference_test.np1
  onednn_test.np1
  comm_units.np1
  comm_messages.np3
  exchange_plan_test.np1
  strategies_test.np3
  overflow_test.np2
  failures_test.np3
  exchange_soak_test.np2
  modular_kernel_test.np2
  loader_test.np2
  chunks_test.np1
  apps.main_job.np2)
set(EPMOE_TEST_SET_tsan  # ThreadSanitizer: wherever several threads or MPI's progress meet
  core_test.np1
  memory_order_test.np1
  experts_native_test.np1
  experts_narrow_test.np1
  experts_bitwise_test.np1
  experts_same_bits_test.np1
  comm_units.np1
  comm_messages.np2
  strategies_test.np2
  failures_test.np2
  modular_kernel_test.np2
  reproducible_test.np2
  apps.main_job.np2)
set(EPMOE_TEST_SETS arm dev tsan)
if(NOT EPMOE_WITH_ONEDNN)
  list(REMOVE_ITEM EPMOE_TEST_SET_arm onednn_test.np1)
  list(REMOVE_ITEM EPMOE_TEST_SET_dev onednn_test.np1)
endif()
if(NOT EPMOE_BUILD_APPS)
  list(REMOVE_ITEM EPMOE_TEST_SET_arm apps.main_job.np2)
  list(REMOVE_ITEM EPMOE_TEST_SET_dev apps.main_job.np2)
  list(REMOVE_ITEM EPMOE_TEST_SET_tsan apps.main_job.np2)
endif()
foreach(set ${EPMOE_TEST_SETS})
  add_custom_target(${set}_tests)
endforeach()

# epmoe_test_set_labels(variable test target…): the labels of the sets that the test is in; the targets join the sets.
function(epmoe_test_set_labels variable test)
  set(labels "")
  foreach(set ${EPMOE_TEST_SETS})
    if(test IN_LIST EPMOE_TEST_SET_${set})
      list(APPEND labels ${set})
      add_dependencies(${set}_tests ${ARGN})
      set_property(GLOBAL APPEND PROPERTY EPMOE_FOUND_IN_${set} ${test})
    endif()
  endforeach()
  set(${variable} "${labels}" PARENT_SCOPE)
endfunction()

function(epmoe_check_test_sets)
  foreach(set ${EPMOE_TEST_SETS})
    get_property(found GLOBAL PROPERTY EPMOE_FOUND_IN_${set})
    foreach(test ${EPMOE_TEST_SET_${set}})
      if(NOT test IN_LIST found)
        message(FATAL_ERROR "cmake/EpmoeTestSets.cmake: no test is called ${test}")
      endif()
    endforeach()
  endforeach()
endfunction()
