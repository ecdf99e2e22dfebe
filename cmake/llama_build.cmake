# Changes how scripts/setup.sh builds ggml and libllama, which takes a third of the first build's time. CMake includes
# this file after their project() (CMAKE_PROJECT_llama_cpp_INCLUDE), and calls the function when all of their targets
# are defined. winnow uses the chat templates and their parsers, the grammars of JSON schemas and the log of
# libllama-common. Flags of llama.cpp's tools and the fetching of models, on which none of these depends, are not built.
# The rest computes nothing that takes long, so -O1 is enough. libllama and ggml's kernels are built unchanged.
function(winnow_build_part_of_llama_common)
  get_target_property(sources llama-common SOURCES)
  list(FILTER sources EXCLUDE REGEX "^(arg|console|debug|download|hf-cache|imatrix-loader|llguidance|preset|subproc)\\.cpp$")
  get_target_property(libraries llama-common LINK_LIBRARIES)
  list(FILTER libraries EXCLUDE REGEX "cpp-httplib")
  set_target_properties(llama-common PROPERTIES SOURCES "${sources}" LINK_LIBRARIES "${libraries}")
  # The rest must link without the removed sources: that is found here, not when a program of winnow's is linked.
  target_link_options(llama-common PRIVATE -Wl,--no-undefined)
  target_compile_options(llama-common PRIVATE -O1)
  set_target_properties(cpp-httplib PROPERTIES EXCLUDE_FROM_ALL TRUE)
endfunction()
cmake_language(DEFER CALL winnow_build_part_of_llama_common)
