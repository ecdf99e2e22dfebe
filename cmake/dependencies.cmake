# Finds all libraries that winnow links, first those that the kernels, the cache and eviction need.
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
find_package(DNNL 2.6 REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)  # for oneDNN's threads, of which only the number is set
if(WINNOW_TESTS)
  find_package(Boost QUIET COMPONENTS context)  # runs the threads of device kernels
endif()
if(NOT WINNOW_ENGINE)
  return()
endif()

# ggml and llama come from CMAKE_PREFIX_PATH if they are there, otherwise from the environment that scripts/setup.sh built
# in the repository, and without one from the system.
set(winnow_prefix)
if(EXISTS ${PROJECT_SOURCE_DIR}/.venv/winnow.stamp)
  file(STRINGS ${PROJECT_SOURCE_DIR}/.venv/winnow.stamp winnow_prefix REGEX "^prefix=")
  string(REPLACE "prefix=" "${PROJECT_SOURCE_DIR}/.venv/" winnow_prefix "${winnow_prefix}")
endif()
find_package(llama CONFIG QUIET HINTS ${winnow_prefix})
set(WINNOW_HAS_OWN_LLAMA FALSE)
if(llama_FOUND AND winnow_prefix)
  string(FIND "${llama_DIR}" "${winnow_prefix}/" place)
  if(place EQUAL 0)
    set(WINNOW_HAS_OWN_LLAMA TRUE)
  endif()
endif()
if(NOT llama_FOUND)
  message(FATAL_ERROR
    "libllama was not found: run scripts/setup.sh prefix (builds one under .venv, about 5 minutes), or name the install "
    "prefix of a llama.cpp in CMAKE_PREFIX_PATH.")
endif()
find_package(ggml CONFIG REQUIRED HINTS ${winnow_prefix})
find_package(LlamaCommon)  # chat templates
if(NOT LlamaCommon_FOUND)
  message(FATAL_ERROR
    "libllama-common was not found beside libllama in ${LLAMA_LIB_DIR}: build that llama.cpp with -DLLAMA_BUILD_COMMON=ON, or "
    "leave it out of CMAKE_PREFIX_PATH and run scripts/setup.sh prefix, which builds one under .venv.")
endif()
if(NOT LLAMA_COMMON_INCLUDE_DIR)
  message(FATAL_ERROR
    "The llama.cpp in ${LLAMA_LIB_DIR} has libllama-common without its headers, which llama.cpp does not install. Name the "
    "folder 'common' of the sources that it was built from: LLAMA_COMMON_INCLUDE_DIR=/path/to/llama.cpp/common, in the "
    "environment or as a -D of CMake. (winnow's own, under .venv, gets them from scripts/setup.sh prefix.)")
endif()
find_package(OpenSSL REQUIRED COMPONENTS Crypto)  # seals of saved contexts
if(WINNOW_TOOLS)
  find_package(CLI11 REQUIRED)
  pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)
  # The line editor of `winnow chat` (BSD licence). Without it lines are edited by the terminal only.
  pkg_check_modules(libedit IMPORTED_TARGET libedit)
endif()

# Folders of shared libraries that the loader does not search by itself, which go into the RPATH of installed targets.
# (In the build tree CMake does this by itself.)
set(WINNOW_LIBRARY_DIRS)
foreach(target IN ITEMS llama llama::common ggml::ggml DNNL::dnnl)
  get_target_property(location ${target} LOCATION)
  get_filename_component(location ${location} DIRECTORY)
  if(NOT location IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    list(APPEND WINNOW_LIBRARY_DIRS ${location})
  endif()
endforeach()
list(REMOVE_DUPLICATES WINNOW_LIBRARY_DIRS)
