# What scripts/setup.sh changes where it builds ggml and libllama, a third of the first build's time: CMake includes this file
# behind their project() (CMAKE_PROJECT_llama_cpp_INCLUDE), and calls the function when all of their targets are there.
# Of libllama-common winnow takes chat templates and their parsers, grammars of JSON schemas, and the log: not the flags of
# llama.cpp's tools and what fetches models for them, on which nothing of that stands. They compute nothing that takes
# long, so -O1 does. libllama and ggml's kernels stay as their authors build them.
function(winnow_build_part_of_llama_common)
  get_target_property(sources llama-common SOURCES)
  list(FILTER sources EXCLUDE REGEX "^(arg|console|debug|download|hf-cache|imatrix-loader|llguidance|preset|subproc)\\.cpp$")
  get_target_property(libraries llama-common LINK_LIBRARIES)
  list(FILTER libraries EXCLUDE REGEX "cpp-httplib")
  set_target_properties(llama-common PROPERTIES SOURCES "${sources}" LINK_LIBRARIES "${libraries}")
  # What is left must stand alone: found here, not when a program of ours is linked.
  target_link_options(llama-common PRIVATE -Wl,--no-undefined)
  target_compile_options(llama-common PRIVATE -O1)
  set_target_properties(cpp-httplib PROPERTIES EXCLUDE_FROM_ALL TRUE)
endfunction()
cmake_language(DEFER CALL winnow_build_part_of_llama_common)
