# make install: the tool, the static and the shared library, the headers, and the package for find_package and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET winnow_cli)
  set_target_properties(winnow_cli PROPERTIES INSTALL_RPATH "${WINNOW_LIBRARY_DIRS}")
  install(TARGETS winnow_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS winnow EXPORT winnowTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET winnow_shared)
  set_target_properties(winnow_shared PROPERTIES EXPORT_NAME shared INSTALL_RPATH "${WINNOW_LIBRARY_DIRS}")
  install(TARGETS winnow_shared EXPORT winnowSharedTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/winnow DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY profiles DESTINATION ${CMAKE_INSTALL_DATADIR}/winnow)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/winnow)
install(EXPORT winnowTargets NAMESPACE winnow:: DESTINATION ${package_dir})
if(TARGET winnow_shared)
  install(EXPORT winnowSharedTargets NAMESPACE winnow:: DESTINATION ${package_dir})
endif()
configure_package_config_file(cmake/winnowConfig.cmake.in winnowConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(winnowConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/winnowConfig.cmake ${PROJECT_BINARY_DIR}/winnowConfigVersion.cmake
  cmake/FindDNNL.cmake cmake/FindLlamaCommon.cmake DESTINATION ${package_dir})

# The static library's own libraries are private ones: pkg-config --static winnow. ggml's and llama's own
# .pc files are not used: those of the Python package name a folder that is gone.
set(winnow_pc_requires "libhwy libcrypto")
set(winnow_pc_private)
foreach(dir IN LISTS WINNOW_LIBRARY_DIRS)
  string(APPEND winnow_pc_private "-L${dir} -Wl,-rpath,${dir} ")
endforeach()
string(APPEND winnow_pc_private "-lllama-common -lllama -lggml -lggml-cpu -lggml-base -ldnnl -fopenmp -pthread -lstdc++ -lm")
# pcfiledir keeps the file right wherever the prefix moves to.
file(RELATIVE_PATH winnow_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/winnow.pc.in winnow.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/winnow.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
