# The install tree: headers, library and the package that find_package(Ahead) reads.

include(CMakePackageConfigHelpers)
set(ahead_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Ahead")

install(TARGETS ahead EXPORT AheadTargets)
install(DIRECTORY include/ahead TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(EXPORT AheadTargets NAMESPACE Ahead:: DESTINATION ${ahead_package_dir})

configure_package_config_file(cmake/AheadConfig.cmake.in AheadConfig.cmake
  INSTALL_DESTINATION ${ahead_package_dir})
write_basic_package_version_file(AheadConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/AheadConfig.cmake"
  "${PROJECT_BINARY_DIR}/AheadConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
  DESTINATION ${ahead_package_dir})
