# winnow_test(name SOURCES... LAYERS... [LIBRARIES...] [E2E] [ONE_PROCESS] [OPTIMISED] [COST n]): adds a GoogleTest program of
# the folder, linked with the object libraries that it tests (all of them, since one does not bring those below it).
#   E2E           label e2e instead of unit, for a test that needs the default model or takes long. With sanitizers it
#                 is built only on request, since make asan runs the unit tests
#   ONE_PROCESS   one entry of ctest for the whole program, as unit tests have, instead of one per case, for costly shared
#                 fixtures. A process for each of 2,500 short cases takes as long as the cases do, and much longer with
#                 sanitizers, with which every program is one entry. Under an emulator, where a case is slow and a
#                 process is not, each case is one
#   OPTIMISED     optimised with sanitizers, too: the test shares inline functions (of JSON) with the code that it
#                 tests, and the linker takes the test's
#   COST          the seconds that it takes with sanitizers, if many: ctest begins the longest first, in every build
# Tests find WINNOW_TEST_MODEL (path of a model) and WINNOW_SHARED (folder of golden cases and texts) in their environment
# if these exist (cmake/test_environment.cmake.in), and skip with a message otherwise.
include(GoogleTest)
find_package(GTest REQUIRED)

# The headers that nearly every test includes are parsed once for all tests; they take a third of a test's compile time.
add_library(winnow_test_headers OBJECT ${PROJECT_SOURCE_DIR}/tests/test_headers.cc)
target_link_libraries(winnow_test_headers PRIVATE GTest::gtest OpenMP::OpenMP_CXX Threads::Threads)
target_precompile_headers(winnow_test_headers PRIVATE <gtest/gtest.h> <algorithm> <cmath> <cstdint> <cstring> <filesystem>
  <fstream> <functional> <map> <memory> <random> <set> <sstream> <string> <vector>)
winnow_target(winnow_test_headers NO_LOOPS)
if(CMAKE_POSITION_INDEPENDENT_CODE)
  target_compile_options(winnow_test_headers PRIVATE -fPIE)  # as programs are compiled
endif()
set_target_properties(winnow_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)

# Random inputs. They are optimised with sanitizers, too (tests/normal_numbers.h), and as vectors, which needs fast maths.
add_library(winnow_normal_numbers STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/normal_numbers.cc)
target_include_directories(winnow_normal_numbers PUBLIC ${PROJECT_SOURCE_DIR}/tests)
winnow_target(winnow_normal_numbers)
target_compile_options(winnow_normal_numbers PRIVATE -O3 -ffast-math)

function(winnow_test name)
  cmake_parse_arguments(ARG "E2E;ONE_PROCESS;OPTIMISED" "COST" "SOURCES;LAYERS;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_LAYERS PREPEND winnow_)
  if(CMAKE_CROSSCOMPILING_EMULATOR)
    target_compile_definitions(${name} PRIVATE WINNOW_EMULATED)  # tests/sanitizers.h
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LAYERS} ${ARG_LIBRARIES} winnow_normal_numbers GTest::gtest
    GTest::gtest_main OpenMP::OpenMP_CXX Threads::Threads)  # OpenMP: as for the precompiled headers
  if(ARG_OPTIMISED AND WINNOW_SANITIZE)
    winnow_target(${name})
  else()
    winnow_target(${name} NO_LOOPS)  # compiling tests is a third of a full build
    target_precompile_headers(${name} REUSE_FROM winnow_test_headers)
  endif()

  set(properties LABELS unit TIMEOUT 600)
  if(WINNOW_SANITIZE)
    set(properties LABELS unit TIMEOUT 900)
  endif()
  if(ARG_COST)
    list(APPEND properties COST ${ARG_COST})
  endif()
  if(ARG_E2E)
    set(properties LABELS e2e TIMEOUT 1200 COST 100)  # long tests begin first, even before ctest knows times
    if(WINNOW_SANITIZE)
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endif()
  endif()
  if(ARG_ONE_PROCESS OR WINNOW_SANITIZE OR NOT (ARG_E2E OR CMAKE_CROSSCOMPILING))
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES ${properties})
  else()
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
  endif()
endfunction()
