# cmake -DPROGRAM=... -DEXPECTED=... -P expect.cmake: runs PROGRAM, fails unless it exits with 0 and prints EXPECTED.
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed ERROR_VARIABLE complaints RESULT_VARIABLE exit_code)
file(READ ${EXPECTED} expected)
if(NOT exit_code EQUAL 0 OR NOT printed STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} exited with ${exit_code} and printed\n${printed}${complaints}expected\n${expected}")
endif()
