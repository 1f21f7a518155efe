# cmake -D name=NAME -D program=FILE -D output=FILE -D prefix=TEXT -D filter=TEXT -D seconds=NUMBER
#       -D properties="NAME VALUE …" -P discover_suites.cmake
#
# Writes the CTest file `output`, which registers each test suite of a GoogleTest program as one test, called `prefix`,
# `name` and the suite, with `properties` and a timeout of `seconds` for each test of the suite, at most half an hour. It
# lists these tests in NAME_TESTS. `filter` is a GoogleTest filter of tests to leave out, such as "-*ResNet18*"; empty
# means none.
#
# gtest_discover_tests starts one process for each test instead. Starting a program with AddressSanitizer takes longer
# than most tests.
execute_process(COMMAND ${program} --gtest_list_tests --gtest_filter=*${filter} OUTPUT_VARIABLE listing
                COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "\\;" listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")

set(script)
function(register suite count)
  if(count EQUAL 0)
    return()
  endif()
  math(EXPR timeout "${seconds} * ${count}")
  if(timeout GREATER 1800)
    set(timeout 1800)
  endif()
  set(script "${script}add_test([==[${prefix}${name}.${suite}]==] [==[${program}]==] [==[--gtest_filter=${suite}.*${filter}]==])
set_tests_properties([==[${prefix}${name}.${suite}]==] PROPERTIES TIMEOUT ${timeout} ${properties})
list(APPEND ${name}_TESTS [==[${prefix}${name}.${suite}]==])
" PARENT_SCOPE)
endfunction()

# "Suite.  # TypeParam = float", then "  Test  # GetParam() = 3" for each of its tests
set(suite)
set(count 0)
foreach(line IN LISTS lines)
  if(line MATCHES "^  [^ ]" AND NOT line MATCHES "^  DISABLED_")
    math(EXPR count "${count} + 1")
  elseif(line MATCHES "^([^ ]+)\\.( |$)")
    set(next ${CMAKE_MATCH_1})
    register("${suite}" ${count})
    set(suite ${next})
    set(count 0)
  endif()
endforeach()
register("${suite}" ${count})
file(WRITE ${output} "set(${name}_TESTS)\n${script}")
