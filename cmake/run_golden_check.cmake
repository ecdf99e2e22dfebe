# cmake -DGOLDEN_CHECK=PROGRAM -DENGINE=ON|OFF -DCASES=FOLDER -P run_golden_check.cmake: checks the golden cases of the
# repository and, with the engine, those of $WINNOW_SHARED if there are any. None may be skipped. EMULATOR is the
# command that runs a program of another processor, OPTIONS are the program's.
set(folders ${CASES})
if(ENGINE AND NOT "$ENV{WINNOW_SHARED}" STREQUAL "" AND EXISTS "$ENV{WINNOW_SHARED}/golden")
  list(APPEND folders $ENV{WINNOW_SHARED}/golden)
endif()
execute_process(COMMAND ${EMULATOR} ${GOLDEN_CHECK} ${OPTIONS} ${folders} RESULT_VARIABLE status OUTPUT_VARIABLE output)
message("${output}")
if(NOT status EQUAL 0 OR NOT output MATCHES "[1-9][0-9]* passed, 0 failed, 0 skipped")
  message(FATAL_ERROR "golden_check: ${status}")
endif()
