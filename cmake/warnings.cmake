# gold links programs with sanitizers, which have 200 MB, in a third of the time. It is not used with clang, since it
# warns of a hundred of clang's symbols.
if(WINNOW_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=gold WINNOW_HAS_GOLD)
endif()

# winnow_target(name [NO_LOOPS] [NO_RAW_BYTES] [REGISTER_ARRAYS]): sets warnings, sanitizers and the optimisation level
# of a target of winnow's own.
#   NO_LOOPS         the target has no hot loops of its own: it is compiled with -O1, which takes two thirds of the time
#                    of -O3, and with sanitizers with -O0, which takes half of the time of -O1. It has no raw bytes either
#   NO_RAW_BYTES     the target reads no numbers out of bytes: UBSan does not look at the alignment of its pointers, nor
#                    for null, which AddressSanitizer reports where it is followed. Both took a third of the compiler's time
#   REGISTER_ARRAYS  the target keeps arrays of vectors in registers: AddressSanitizer does not look for locals that are
#                    used after their scope. It would have those arrays in memory and check each access, so that
#                    attention over a prompt took four times as long
function(winnow_target name)
  cmake_parse_arguments(ARG "NO_LOOPS;NO_RAW_BYTES;REGISTER_ARRAYS" "" "" ${ARGN})
  if(ARG_NO_LOOPS)
    set(level $<$<CONFIG:Release>:-O1>)
    if(WINNOW_SANITIZE)
      set(level -O0)
    endif()
    target_compile_options(${name} PRIVATE ${level})
  endif()
  # Left out are restrict and null-dereference, which gcc 12 finds in its own std::string, streambuf and vector<bool>,
  # and missing-field-initializers, since options are structs of defaults and initialisers name the fields that differ.
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
                                         -Wcast-align -Woverloaded-virtual -Wno-restrict -Wno-missing-field-initializers)
  if(CMAKE_UNITY_BUILD)
    target_compile_options(${name} PRIVATE -Wno-subobject-linkage)  # gcc takes the sources for headers
  endif()
  if(WINNOW_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(WINNOW_SANITIZE)
    if(WINNOW_HAS_GOLD)
      target_link_options(${name} PRIVATE -fuse-ld=gold)
    endif()
    target_compile_options(${name} PRIVATE -fsanitize=${WINNOW_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    if(ARG_NO_LOOPS OR ARG_NO_RAW_BYTES)
      target_compile_options(${name} PRIVATE -fno-sanitize=null,alignment)
    endif()
    if(ARG_REGISTER_ARRAYS AND WINNOW_SANITIZE MATCHES address)
      target_compile_options(${name} PRIVATE -fno-sanitize-address-use-after-scope)
    endif()
    target_link_options(${name} PUBLIC -fsanitize=${WINNOW_SANITIZE})
  endif()
endfunction()

# winnow_layer(name [STATIC] [NO_RAW_BYTES] [REGISTER_ARRAYS] SOURCES... DEPENDS...): adds a folder of src/ as an object
# library, or as a static one, which targets that link a layer above it get without naming it. A layer sees only the
# layers that it names in DEPENDS. The other options are winnow_target's.
function(winnow_layer name)
  cmake_parse_arguments(ARG "STATIC;NO_RAW_BYTES;REGISTER_ARRAYS" "" "SOURCES;DEPENDS" ${ARGN})
  set(kind OBJECT)
  if(ARG_STATIC)
    set(kind STATIC)
  endif()
  add_library(winnow_${name} ${kind} ${ARG_SOURCES})
  target_include_directories(winnow_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(winnow_${name} PUBLIC ${ARG_DEPENDS})
  set(options "")
  foreach(option NO_RAW_BYTES REGISTER_ARRAYS)
    if(ARG_${option})
      list(APPEND options ${option})
    endif()
  endforeach()
  winnow_target(winnow_${name} ${options})
endfunction()

# winnow_regex_sources(FILES...): turns off a warning for sources that include <regex>, in which gcc 12 finds
# uninitialised members of std::function when it builds with sanitizers (its bug 105562).
function(winnow_regex_sources)
  if(WINNOW_SANITIZE)
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
  endif()
endfunction()
