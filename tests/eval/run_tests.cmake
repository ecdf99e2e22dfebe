# Tests of the runner, the statistics and the reports. (The benchmarks' own are in CMakeLists.txt.)

set(layers eval_report charts markup_check eval_run eval tiny_model generate engine device model eviction cache kernels)
winnow_test(eval_run_test
  SOURCES answer_fidelity_test.cc evaluation_test.cc matrix_test.cc prompt_test.cc result_store_test.cc runner_test.cc
          statistics_test.cc
  LAYERS ${layers})
target_compile_definitions(eval_run_test PRIVATE WINNOW_EVAL_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data")
winnow_test(eval_report_test SOURCES report_test.cc LAYERS ${layers})

# The page of the report test in a real browser (tests/browser), where there is one.
set(page ${CMAKE_CURRENT_BINARY_DIR}/report.html)
target_compile_definitions(eval_report_test PRIVATE WINNOW_REPORT_PAGE="${page}")
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME report_in_browser COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/report_page_test.py ${page})
  set_tests_properties(report_in_browser PROPERTIES LABELS e2e TIMEOUT 600 SKIP_REGULAR_EXPRESSION "^skipped: "
                                                    FIXTURES_REQUIRED report_page)
  add_test(NAME report_page COMMAND eval_report_test --gtest_filter=Report.ManyMethods)
  set_tests_properties(report_page PROPERTIES LABELS e2e FIXTURES_SETUP report_page)
endif()

# The commands as processes; skipped without a model.
winnow_test(eval_tool_test SOURCES eval_tool_test.cc ../cli/process.cc ../cli/tool.cc LAYERS markup_check LIBRARIES winnow E2E)
target_compile_definitions(eval_tool_test PRIVATE WINNOW_TOOL_PATH="$<TARGET_FILE:winnow_cli>")
add_dependencies(eval_tool_test winnow_cli)

# The examples for job systems, with two shards; skipped without a model or GNU parallel.
foreach(example parallel slurm)
  add_test(NAME job_example_${example} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/job_examples_test.sh ${example})
  set_tests_properties(job_example_${example} PROPERTIES
    LABELS e2e TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "WINNOW=$<TARGET_FILE:winnow_cli>")
endforeach()
