# What the Debian package holds (make deb), in place of cmake/install.cmake: the tool, the shared library and its headers,
# and in a folder of their own ggml and libllama, which Debian does not have. ggml's kernels are there once for each level of
# the processor, from which glibc's loader chooses (scripts/setup.sh wheel).
include(cmake/install_files.cmake)
include(cmake/bundled_libraries.cmake)
set(private_dir ${CMAKE_INSTALL_LIBDIR}/winnow)

# An rpath that holds for the libraries' own libraries, too.
foreach(target IN ITEMS winnow_cli winnow_shared)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH ${CMAKE_INSTALL_PREFIX}/${private_dir})
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endforeach()
winnow_bundle_libraries(winnow_cli ${private_dir} ONLY "${WINNOW_OWN_LIBRARIES}")  # others are Debian's packages'

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
