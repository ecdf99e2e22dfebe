# Finds libllama-common as llama::common: chat templates, tool formats and their parsers. llama.cpp installs the library
# next to libllama, but not its headers. They are looked for in the folder llama-common of llama.cpp's headers, where
# scripts/setup.sh puts them, or in LLAMA_COMMON_INCLUDE_DIR (of CMake or the environment), the folder "common" of the
# sources from which the library was built. Without the headers the target is defined all the same, for programs that
# link winnow's static library. Must be called after find_package(llama).
find_library(LLAMA_COMMON_LIBRARY llama-common HINTS ${LLAMA_LIB_DIR})
find_path(LLAMA_COMMON_INCLUDE_DIR NAMES chat.h HINTS ENV LLAMA_COMMON_INCLUDE_DIR ${LLAMA_INCLUDE_DIR}/llama-common
  NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LlamaCommon REQUIRED_VARS LLAMA_COMMON_LIBRARY)
mark_as_advanced(LLAMA_COMMON_LIBRARY LLAMA_COMMON_INCLUDE_DIR)

if(LlamaCommon_FOUND AND NOT TARGET llama::common)
  add_library(llama::common UNKNOWN IMPORTED)
  set_target_properties(llama::common PROPERTIES IMPORTED_LOCATION ${LLAMA_COMMON_LIBRARY} INTERFACE_LINK_LIBRARIES llama)
  if(LLAMA_COMMON_INCLUDE_DIR)
    set_target_properties(llama::common PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${LLAMA_COMMON_INCLUDE_DIR})
  endif()
endif()
