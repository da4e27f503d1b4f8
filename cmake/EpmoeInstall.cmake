# Installs library, headers, command and what find_package(epmoe) reads.
include(CMakePackageConfigHelpers)
set(epmoe_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/epmoe")

get_target_property(epmoe_type epmoe TYPE)
set(epmoe_is_shared FALSE)
if(epmoe_type STREQUAL "SHARED_LIBRARY")
  set(epmoe_is_shared TRUE)
endif()

install(TARGETS epmoe EXPORT epmoeTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(DIRECTORY include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(EXPORT epmoeTargets NAMESPACE epmoe:: DESTINATION "${epmoe_package_dir}")
if(TARGET epmoe_cli)
  set_target_properties(epmoe_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS epmoe_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

configure_package_config_file(cmake/epmoeConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/epmoeConfig.cmake"
  INSTALL_DESTINATION "${epmoe_package_dir}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/epmoeConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/epmoeConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/epmoeConfigVersion.cmake"
  DESTINATION "${epmoe_package_dir}")
