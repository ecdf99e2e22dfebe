# What the Debian package holds (make deb), in place of cmake/install.cmake: the tool, the shared library and its headers,
# and in a folder of their own ggml and libllama, which Debian does not have. ggml's kernels are there once for each level of
# the processor, from which glibc's loader chooses (scripts/setup.sh wheel).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(WINNOW_GGML_VARIANTS "" CACHE PATH "Folder with a libggml-cpu for each level of the processor: x86-64-v2, ...")
set(private_dir ${CMAKE_INSTALL_LIBDIR}/winnow)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/winnow)

# An rpath that holds for the libraries' own libraries, too.
set_target_properties(winnow_cli winnow_shared PROPERTIES INSTALL_RPATH ${CMAKE_INSTALL_PREFIX}/${private_dir})
foreach(target IN ITEMS winnow_cli winnow_shared)
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endforeach()
set_target_properties(winnow_shared PROPERTIES EXPORT_NAME shared)
install(TARGETS winnow_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS winnow_shared EXPORT winnowSharedTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/winnow DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY profiles DESTINATION ${CMAKE_INSTALL_DATADIR}/winnow)
install(EXPORT winnowSharedTargets NAMESPACE winnow:: DESTINATION ${package_dir})
configure_package_config_file(cmake/winnowConfig.cmake.in winnowConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(winnowConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/winnowConfig.cmake ${PROJECT_BINARY_DIR}/winnowConfigVersion.cmake DESTINATION ${package_dir})
file(RELATIVE_PATH winnow_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/winnow.pc.in winnow.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/winnow.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Under the names that they are linked by; those of Debian are its packages'.
install(CODE "set(tool $<TARGET_FILE:winnow_cli>)\nset(folders ${WINNOW_LIBRARY_DIRS})\nset(private ${private_dir})")
install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${tool} DIRECTORIES ${folders} RESOLVED_DEPENDENCIES_VAR libraries)
  foreach(library IN LISTS libraries)
    if(NOT library MATCHES "/lib(llama|llama-common|ggml[a-z-]*)\\.so")
      continue()
    endif()
    get_filename_component(name ${library} NAME)
    file(REAL_PATH ${library} real)
    file(INSTALL ${real} DESTINATION ${CMAKE_INSTALL_PREFIX}/${private} RENAME ${name})
  endforeach()
]])
if(WINNOW_GGML_VARIANTS)
  install(DIRECTORY ${WINNOW_GGML_VARIANTS}/ DESTINATION ${private_dir}/glibc-hwcaps
    PATTERN baseline EXCLUDE PATTERN VERSION EXCLUDE)
  install(DIRECTORY ${WINNOW_GGML_VARIANTS}/baseline/ DESTINATION ${private_dir})  # for what is below all levels
endif()

# Made by the tool itself.
find_program(HELP2MAN help2man REQUIRED)
set(made ${PROJECT_BINARY_DIR}/packaging)
add_custom_command(OUTPUT ${made}/done
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${made}
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/man.sh $<TARGET_FILE:winnow_cli> ${made}/man
  COMMAND $<TARGET_FILE:winnow_cli> completion bash > ${made}/winnow
  COMMAND $<TARGET_FILE:winnow_cli> completion zsh > ${made}/_winnow
  COMMAND ${CMAKE_COMMAND} -E touch ${made}/done
  DEPENDS winnow_cli ${CMAKE_CURRENT_LIST_DIR}/man.sh VERBATIM)
add_custom_target(winnow_packaging ALL DEPENDS ${made}/done)
install(DIRECTORY ${made}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${made}/winnow DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${made}/_winnow DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/winnow.service DESTINATION /lib/systemd/system)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/winnow.default DESTINATION /etc/default RENAME winnow)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME winnow)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language models on long prompts with a KV cache that is cut")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "Runs GGUF language models on long prompts with a KV cache that keeps only what
attention needs: a command line tool, a server for the clients of OpenAI,
Anthropic and ollama, and a library for C++.")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "the authors of winnow <winnow@localhost>")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${WINNOW_LIBRARY_DIRS})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/conffiles)
set(CPACK_STRIP_FILES ON)
include(CPack)
