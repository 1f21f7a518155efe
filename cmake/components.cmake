# The libraries as targets convoy::…, and what `cmake --install` installs: headers, libraries, programs, and the package
# that find_package(convoy) reads. docs/library.md tells how to use them.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# convoy_component(name): declares the library convoy_<name> as convoy::<name>, and installs it with its headers. The
# kernels belong to the component engine, comm/cluster is the component cluster, and apps/ is the component train.
function(convoy_component name)
  add_library(convoy::${name} ALIAS convoy_${name})
  # Without the macro that CMake defines for sources of shared libraries, which no header of ours reads: both kinds of
  # library then compile alike.
  set_target_properties(convoy_${name} PROPERTIES EXPORT_NAME ${name} DEFINE_SYMBOL "" VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} INSTALL_RPATH "$ORIGIN")
  set(component ${name})
  if(name STREQUAL kernels)
    set(component engine)
  endif()
  install(TARGETS convoy_${name} EXPORT convoy_${component})
  set_property(GLOBAL APPEND PROPERTY CONVOY_INSTALLED $<TARGET_FILE:convoy_${name}>)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE directory)
  set(without_cluster PATTERN cluster EXCLUDE)
  if(name STREQUAL cluster)
    set(without_cluster)
  endif()
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/ DESTINATION include/convoy/${directory} FILES_MATCHING PATTERN "*.h" ${without_cluster}
          PATTERN cudnn EXCLUDE PATTERN cublas EXCLUDE PATTERN winograd EXCLUDE PATTERN few_channels EXCLUDE
          PATTERN examples EXCLUDE)
endfunction()

# Installs the package, and convoy::convoy, which links all libraries of this build.
function(convoy_install)
  add_library(convoy_convoy INTERFACE)
  add_library(convoy::convoy ALIAS convoy_convoy)
  set_target_properties(convoy_convoy PROPERTIES EXPORT_NAME convoy)
  set_target_properties(convoy_interface PROPERTIES EXPORT_NAME interface)
  set(emulator)
  if(CONVOY_CUDA STREQUAL emulator)
    set(emulator cuemu_runtime convoy_cuda_emulator)
  endif()
  install(TARGETS convoy_interface ${emulator} EXPORT convoy_engine)
  foreach(component ${CONVOY_COMPONENTS})
    target_link_libraries(convoy_convoy INTERFACE convoy_${component})
  endforeach()
  install(TARGETS convoy_convoy EXPORT convoy_convoy)

  set(directory ${CMAKE_INSTALL_LIBDIR}/cmake/convoy)
  foreach(component ${CONVOY_COMPONENTS} convoy)
    install(EXPORT convoy_${component} NAMESPACE convoy:: DESTINATION ${directory})
  endforeach()
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/package/convoyConfig.cmake.in
    ${PROJECT_BINARY_DIR}/package/convoyConfig.cmake INSTALL_DESTINATION ${directory})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/convoyConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/package/convoyConfig.cmake ${PROJECT_BINARY_DIR}/package/convoyConfigVersion.cmake
    ${PROJECT_SOURCE_DIR}/cmake/package/find_dependencies.cmake DESTINATION ${directory})
  install(FILES ${PROJECT_BINARY_DIR}/include/convoy/convoy.h ${PROJECT_BINARY_DIR}/include/convoy/version.h
    DESTINATION include/convoy)
endfunction()

# Lets `cmake --install` say what a build lacks before it installs anything. To be called before all other install rules;
# the functions that install a file append it to the property CONVOY_INSTALLED.
function(convoy_check_install)
  get_property(has_several_builds GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  if(has_several_builds)
    return()
  endif()
  install(CODE "include(\"${PROJECT_BINARY_DIR}/package/check_complete.cmake\")")
  cmake_language(DEFER DIRECTORY ${PROJECT_SOURCE_DIR} CALL convoy_write_check)
endfunction()
function(convoy_write_check)
  get_property(files GLOBAL PROPERTY CONVOY_INSTALLED)
  list(JOIN files "\"\n    \"" files)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/package/check_complete.cmake CONTENT "set(missing)
foreach(file
    \"${files}\")
  if(NOT EXISTS \"\${file}\")
    string(APPEND missing \"\\n  \${file}\")
  endif()
endforeach()
if(missing)
  message(FATAL_ERROR \"This build is not complete, so nothing was installed. Missing:\${missing}\\nBuild all first: cmake --build ${PROJECT_BINARY_DIR}\\nor install the libraries alone: configure with -DCONVOY_PROGRAMS=OFF.\")
endif()
")
endfunction()
