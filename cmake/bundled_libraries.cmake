# winnow_bundle_libraries(TARGET FOLDER [ONLY REGEX] [LICENCES FOLDER] [INSTALL_OPTIONS OPTION...]): installs the shared
# libraries that a target links into a folder of its own, under the names by which they are linked, except those that
# every Linux has (the C library and the compiler's). With WINNOW_GGML_VARIANTS, also installs ggml's kernels once for
# each level of the processor, among which glibc's loader chooses (scripts/setup.sh wheel).
#   ONLY       installs only libraries whose path matches
#   LICENCES   installs the licences of libraries that come from Debian's packages, as FOLDER/PACKAGE
set(WINNOW_OWN_LIBRARIES "/lib(llama|llama-common|ggml[a-z-]*)\\.so")  # those that no package of Debian has
set(WINNOW_GGML_VARIANTS "" CACHE PATH "Folder with a libggml-cpu for each level of the processor: x86-64-v2, ...")

function(winnow_bundle_libraries target folder)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "ONLY;LICENCES" "INSTALL_OPTIONS")
  get_target_property(type ${target} TYPE)
  set(kind MODULES)
  if(type STREQUAL EXECUTABLE)
    set(kind EXECUTABLES)
  endif()
  install(CODE "
    set(kind ${kind})
    set(file [==[$<TARGET_FILE:${target}>]==])
    set(search [==[${WINNOW_LIBRARY_DIRS}]==])
    set(folder [==[${folder}]==])
    set(only [==[${ARG_ONLY}]==])
    set(licences [==[${ARG_LICENCES}]==])" ${ARG_INSTALL_OPTIONS})
  install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/install_libraries.cmake ${ARG_INSTALL_OPTIONS})
  if(WINNOW_GGML_VARIANTS)
    install(DIRECTORY ${WINNOW_GGML_VARIANTS}/ DESTINATION ${folder}/glibc-hwcaps ${ARG_INSTALL_OPTIONS}
      PATTERN baseline EXCLUDE PATTERN VERSION EXCLUDE)
    # The kernels for processors below all levels.
    install(DIRECTORY ${WINNOW_GGML_VARIANTS}/baseline/ DESTINATION ${folder} ${ARG_INSTALL_OPTIONS})
  endif()
endfunction()
