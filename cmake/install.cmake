# Installs the tool, the static and the shared library, the headers, and the package for find_package and pkg-config
# (make install).
include(GNUInstallDirs)

# Libraries that the static library links are private ones, for pkg-config --static winnow. ggml's and llama's own .pc
# files are not used, since those of the Python package name a folder that no longer exists.
set(winnow_pc_requires "libhwy libcrypto")
set(winnow_pc_private)
foreach(dir IN LISTS WINNOW_LIBRARY_DIRS)
  string(APPEND winnow_pc_private "-L${dir} -Wl,-rpath,${dir} ")
endforeach()
string(APPEND winnow_pc_private "-lllama-common -lllama -lggml -lggml-cpu -lggml-base -ldnnl -fopenmp -pthread -lstdc++ -lm")
include(cmake/install_files.cmake)

foreach(target IN ITEMS winnow_cli winnow_shared)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "${WINNOW_LIBRARY_DIRS}")
  endif()
endforeach()
install(TARGETS winnow EXPORT winnowTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT winnowTargets NAMESPACE winnow:: DESTINATION ${package_dir})
install(FILES cmake/FindDNNL.cmake cmake/FindLlamaCommon.cmake DESTINATION ${package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
