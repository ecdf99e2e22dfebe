# cmake -DGOLDEN_CHECK=PROGRAM -P run_golden_check.cmake: the golden cases of $WINNOW_SHARED, where there are any.
if("$ENV{WINNOW_SHARED}" STREQUAL "" OR NOT EXISTS "$ENV{WINNOW_SHARED}/golden")
  message("skipped: ../shared/golden is not here")
  return()
endif()
execute_process(COMMAND ${GOLDEN_CHECK} $ENV{WINNOW_SHARED}/golden RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "golden_check: ${status}")
endif()
