# Installs the files of every installation (cmake/install.cmake, packaging/package.cmake): the tool, the shared library,
# headers, profiles, and the package for find_package and pkg-config. The file that includes this one sets where the
# programs look for ggml and libllama.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/winnow)

if(TARGET winnow_cli)
  install(TARGETS winnow_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET winnow_shared)
  set_target_properties(winnow_shared PROPERTIES EXPORT_NAME shared)
  install(TARGETS winnow_shared EXPORT winnowSharedTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT winnowSharedTargets NAMESPACE winnow:: DESTINATION ${package_dir})
endif()
install(DIRECTORY include/winnow DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY profiles DESTINATION ${CMAKE_INSTALL_DATADIR}/winnow)
configure_package_config_file(cmake/winnowConfig.cmake.in winnowConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(winnowConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/winnowConfig.cmake ${PROJECT_BINARY_DIR}/winnowConfigVersion.cmake DESTINATION ${package_dir})
# With pcfiledir the file stays right if the prefix is moved.
file(RELATIVE_PATH winnow_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/winnow.pc.in winnow.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/winnow.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
