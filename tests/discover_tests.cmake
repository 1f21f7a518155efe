# cmake -D name=NAME -D program=FILE -D output=FILE -D prefix=TEXT -D filter=TEXT -D suites=REGEX -D seconds=NUMBER
#       [-D emulator=COMMAND] -P discover_tests.cmake
#
# Writes the CTest file `output`, which registers the tests of a GoogleTest program and lists them in NAME_TESTS. A suite
# whose name matches `suites` is one test, called `prefix`, `name` and the suite, with a timeout of `seconds` for each of
# its tests, at most half an hour. Each test of another suite is one, called `prefix`, the suite and the test. `filter` is
# a GoogleTest filter of tests to leave out, such as "-*ResNet18*"; empty means none. The program runs in `emulator`, a
# list of words, if it is given.
#
# The tests that may take longest begin first.
execute_process(COMMAND ${emulator} ${program} --gtest_list_tests --gtest_filter=*${filter} OUTPUT_VARIABLE listing
                COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "\\;" listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")

set(command)
foreach(word IN LISTS emulator program)
  string(APPEND command " [==[${word}]==]")
endforeach()
set(script)
function(register title tests timeout skipped)
  set(script "${script}add_test([==[${prefix}${title}]==]${command} [==[--gtest_filter=${tests}]==])
set_tests_properties([==[${prefix}${title}]==] PROPERTIES TIMEOUT ${timeout} COST ${timeout} SKIP_REGULAR_EXPRESSION [==[${skipped}]==])
list(APPEND ${name}_TESTS [==[${prefix}${title}]==])
" PARENT_SCOPE)
endfunction()

macro(end_suite)
  if(count GREATER 0)
    math(EXPR timeout "${seconds} * ${count}")
    if(timeout GREATER 1800)
      set(timeout 1800)
    endif()
    # Skipped, if every test of the suite was.
    register("${name}.${suite}" "${suite}.*${filter}" ${timeout} "PASSED  . 0 tests.\n(.  SKIPPED [^\n]*\n)+\n*$")
  endif()
  set(count 0)
endmacro()

# "Suite.  # TypeParam = float", then "  Test  # GetParam() = 3" for each of its tests
set(suite)
set(count 0)
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^  DISABLED_" AND line MATCHES "^  ([^ ]+)")
    set(test ${CMAKE_MATCH_1})
    if(suite MATCHES "^(${suites})$")
      math(EXPR count "${count} + 1")
    else()
      register("${title}.${test}" "${suite}.${test}" ${seconds} ".  SKIPPED .")
    endif()
  elseif(line MATCHES "^([^ ]+)\\.( |$)")
    end_suite()
    string(REGEX REPLACE "\\.( .*)?$" "" suite "${line}")
    set(title ${suite})
    if(line MATCHES "^(.*)/[0-9]+\\.  # TypeParam = (.*)$")
      set(title "${CMAKE_MATCH_1}<${CMAKE_MATCH_2}>")
    endif()
  endif()
endforeach()
end_suite()
file(WRITE ${output} "set(${name}_TESTS)\n${script}")
