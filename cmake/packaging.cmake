# What `cmake --install` installs next to the libraries: the programs, the recipes and the documentation;
# and the Debian package that `cpack` makes of all of it.

# Installs the programs.
function(convoy_install_programs)
  foreach(name train evaluate predict export report doctor launch
               bench-allreduce bench-kernels bench-loader bench-step)
    set(program convoy-${name})
    if(NOT TARGET ${program})
      continue()
    endif()
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${program})
    set_property(GLOBAL APPEND PROPERTY CONVOY_INSTALLED $<TARGET_FILE:${program}>)
  endforeach()
endfunction()

# Installs the recipes and the documentation.
function(convoy_install_documents)
  install(DIRECTORY apps/recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/convoy)
  install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs
          PATTERN CMakeLists.txt EXCLUDE PATTERN Doxyfile.in EXCLUDE PATTERN "reference*" EXCLUDE)
  install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
endfunction()

# Describes the package for `cpack`, which builds it in the build directory.
macro(convoy_describe_package)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME convoy)
  set(CPACK_PACKAGE_VENDOR Convoy)
  set(CPACK_PACKAGE_CONTACT "The Convoy authors")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Deep-learning engine: programs, libraries and headers")
  set(CPACK_PACKAGE_DESCRIPTION "Convoy trains networks on one or many processes, on CPUs and NVIDIA GPUs. The package has
its programs, the libraries with their headers for programs of one's own, recipes and documentation.")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_VERBATIM_VARIABLES ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  # The first: the threads of OpenMP alone. The second is loaded by the first download.
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libopenblas0-openmp | libopenblas0, libcurl4 | libcurl4t64")
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
  # For programs that link the libraries.
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, g++, libdnnl-dev, libopenblas-openmp-dev, libfmt-dev, libxxhash-dev, \
libopenmpi-dev, libarchive-dev, libcurl4-openssl-dev, libssl-dev, zlib1g-dev, libjpeg-dev, libwebp-dev")
  include(CPack)
endmacro()
