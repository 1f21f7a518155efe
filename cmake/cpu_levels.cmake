# Libraries for all x86-64 processors: their hot sources are compiled once more for each of CONVOY_CPU_LEVELS. The loader
# of glibc (2.33 or later) takes a library from the subdirectory glibc-hwcaps/LEVEL, next to the library itself, of the
# highest level that the processor has. So no code of this project chooses.

# convoy_cpu_levels(target SOURCE…): adds a library for each level to a library of this directory. They compile these
# sources of it, which must be its hot ones, and share all other objects with it. Call it when the target is complete.
function(convoy_cpu_levels target)
  if(CONVOY_CPU_LEVELS)
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)  # an object for each source
  endif()
  get_target_property(options ${target} COMPILE_OPTIONS)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  list(JOIN ARGN "|" compiled)
  foreach(level ${CONVOY_CPU_LEVELS})
    set(library ${target}_${level})
    add_library(${library} SHARED ${ARGN}
                $<FILTER:$<TARGET_OBJECTS:${target}>,EXCLUDE,${target}\\.dir/\(\\./\)?\(${compiled}\)\\.o>)
    target_compile_options(${library} PRIVATE ${options} $<$<COMPILE_LANGUAGE:CXX>:-march=${level}>)
    if(level STREQUAL x86-64-v4)
      # As -march=native does on processors with AVX-512; some sources have a width of their own.
      target_compile_options(${library} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-mprefer-vector-width=256>)
    endif()
    target_link_libraries(${library} PRIVATE ${libraries})
    # Inline functions that are not exported: another library would have them without the instructions of the level.
    set_target_properties(${library} PROPERTIES CONVOY_CPU_LEVEL ${level} OUTPUT_NAME ${target} DEFINE_SYMBOL ""
      VISIBILITY_INLINES_HIDDEN ON VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/glibc-hwcaps/${level} INSTALL_RPATH "$ORIGIN/../..")
    install(TARGETS ${library} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/glibc-hwcaps/${level} NAMELINK_SKIP)
  endforeach()
endfunction()
