# Programs with sanitizers have 200 MB: gold links them in a third of the time. It warns of a hundred symbols of clang's.
if(WINNOW_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=gold WINNOW_HAS_GOLD)
endif()

# winnow_target(name [NO_LOOPS]): warnings, sanitizers and level of optimisation of every target of ours.
#   NO_LOOPS   it reads, writes and calls what computes: -O1 takes the compiler two thirds of the time of -O3, and with
#              sanitizers -O0 half of that of -O1
function(winnow_target name)
  cmake_parse_arguments(ARG "NO_LOOPS" "" "" ${ARGN})
  if(ARG_NO_LOOPS)
    set(level $<$<CONFIG:Release>:-O1>)
    if(WINNOW_SANITIZE)
      set(level -O0)
    endif()
    target_compile_options(${name} PRIVATE ${level})
  endif()
  # Not restrict and null-dereference: gcc 12 finds them in its own std::string, streambuf and vector<bool>. Not
  # missing-field-initializers: options are structs of defaults, and designated initialisers name those that differ.
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
                                         -Wcast-align -Woverloaded-virtual -Wno-restrict -Wno-missing-field-initializers)
  if(CMAKE_UNITY_BUILD)
    target_compile_options(${name} PRIVATE -Wno-subobject-linkage)  # it takes the sources for headers
  endif()
  if(WINNOW_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(WINNOW_SANITIZE)
    if(WINNOW_HAS_GOLD)
      target_link_options(${name} PRIVATE -fuse-ld=gold)
    endif()
    target_compile_options(${name} PRIVATE -fsanitize=${WINNOW_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${name} PUBLIC -fsanitize=${WINNOW_SANITIZE})
  endif()
endfunction()

# winnow_layer(name [STATIC] SOURCES... DEPENDS...): one folder of src/ as an object library, or as a static one, which whoever
# links a layer above it gets without naming it. A layer sees only the layers that it names in DEPENDS.
function(winnow_layer name)
  cmake_parse_arguments(ARG "STATIC" "" "SOURCES;DEPENDS" ${ARGN})
  set(kind OBJECT)
  if(ARG_STATIC)
    set(kind STATIC)
  endif()
  add_library(winnow_${name} ${kind} ${ARG_SOURCES})
  target_include_directories(winnow_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(winnow_${name} PUBLIC ${ARG_DEPENDS})
  winnow_target(winnow_${name})
endfunction()

# winnow_regex_sources(FILES...): sources that include <regex>, in which gcc 12 finds uninitialised members of std::function
# when it builds with sanitizers (its bug 105562).
function(winnow_regex_sources)
  if(WINNOW_SANITIZE)
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
  endif()
endfunction()
