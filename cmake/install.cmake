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

# The ggml and libllama that scripts/setup.sh built are installed, too, in a folder of their own: what is installed then
# works without the repository. (The static library links those of the repository.) Another llama.cpp stays where it is.
set(winnow_rpath_of_cli ${WINNOW_LIBRARY_DIRS})
set(winnow_rpath_of_shared ${WINNOW_LIBRARY_DIRS})
if(WINNOW_HAS_OWN_LLAMA)
  include(cmake/bundled_libraries.cmake)
  file(RELATIVE_PATH from_bin /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR}/winnow)
  set(winnow_rpath_of_cli "$ORIGIN/${from_bin}")
  set(winnow_rpath_of_shared "$ORIGIN/winnow")
endif()
foreach(name IN ITEMS cli shared)
  if(TARGET winnow_${name})
    set_target_properties(winnow_${name} PROPERTIES INSTALL_RPATH "${winnow_rpath_of_${name}}")
  endif()
endforeach()
if(WINNOW_HAS_OWN_LLAMA AND TARGET winnow_cli)
  winnow_bundle_libraries(winnow_cli ${CMAKE_INSTALL_LIBDIR}/winnow ONLY "${WINNOW_OWN_LIBRARIES}")
endif()
install(TARGETS winnow EXPORT winnowTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT winnowTargets NAMESPACE winnow:: DESTINATION ${package_dir})
install(FILES cmake/FindDNNL.cmake cmake/FindLlamaCommon.cmake DESTINATION ${package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
