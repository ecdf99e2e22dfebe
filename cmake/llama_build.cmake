# Changes how scripts/setup.sh builds ggml and libllama, which takes a third of the first build's time. CMake includes
# this file after their project() (CMAKE_PROJECT_llama_cpp_INCLUDE), and calls the functions when all of their targets
# are defined. winnow uses ggml's kernels and formats, libllama's tokenizers and grammars, and of libllama-common the
# chat templates and their parsers, the grammars of JSON schemas and the log. The tests and bench/ compare winnow with
# libllama's own forward pass. ggml is built unchanged.

# What computes nothing that takes long is compiled with -O1. In libllama that is all but tokenizers, grammars and
# samplers: graphs are built once a batch, and ggml computes them. libllama compiles its models together, but nothing
# else of what is small.
function(winnow_build_libllama_fast)
  get_target_property(folder llama SOURCE_DIR)
  target_compile_options(llama PRIVATE -O1)
  set(hot llama-grammar.cpp llama-sampler.cpp llama-vocab.cpp unicode.cpp unicode-data.cpp)
  list(TRANSFORM hot PREPEND ${folder}/)
  set_source_files_properties(${hot} TARGET_DIRECTORY llama PROPERTIES COMPILE_OPTIONS -O3)
  file(GLOB small ${folder}/llama-kv-cache*.cpp ${folder}/llama-memory*.cpp)
  set(others adapter arch batch chat cparams hparams impl io mmap model-saver)
  list(TRANSFORM others REPLACE "(.+)" "${folder}/llama-\\1.cpp")
  set_source_files_properties(${small} ${others} TARGET_DIRECTORY llama PROPERTIES SKIP_UNITY_BUILD_INCLUSION OFF)
endfunction()

# Flags of llama.cpp's tools and the fetching of models, on which nothing of the rest depends, are not built. Most of
# what remains are small sources behind the same large headers, which are compiled together; json.cpp specialises what
# others use.
function(winnow_build_part_of_llama_common)
  get_target_property(sources llama-common SOURCES)
  list(FILTER sources EXCLUDE REGEX
    "^(arg|console|debug|download|hf-cache|imatrix-loader|llguidance|preset|subproc)\\.cpp$")
  get_target_property(libraries llama-common LINK_LIBRARIES)
  list(FILTER libraries EXCLUDE REGEX "cpp-httplib")
  set_target_properties(llama-common PROPERTIES SOURCES "${sources}" LINK_LIBRARIES "${libraries}" UNITY_BUILD ON
    UNITY_BUILD_BATCH_SIZE 8)
  get_target_property(folder llama-common SOURCE_DIR)
  set_source_files_properties(${folder}/json.cpp TARGET_DIRECTORY llama-common PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # The rest must link without the removed sources: that is found here, not when a program of winnow's is linked.
  target_link_options(llama-common PRIVATE -Wl,--no-undefined)
  target_compile_options(llama-common PRIVATE -O1)
  set_target_properties(cpp-httplib PROPERTIES EXCLUDE_FROM_ALL TRUE)
endfunction()

cmake_language(DEFER CALL winnow_build_libllama_fast)
cmake_language(DEFER CALL winnow_build_part_of_llama_common)
