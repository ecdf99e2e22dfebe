# winnow_test(name SOURCES... LAYERS...): a GoogleTest program of the folder, linked with the object libraries it tests.
include(GoogleTest)
find_package(GTest REQUIRED)

function(winnow_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_LAYERS PREPEND winnow_)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LAYERS} ${ARG_LIBRARIES} GTest::gtest GTest::gtest_main Threads::Threads)
  winnow_target(${name})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60)
endfunction()
