# Builds the Debian package of a build directory, unpacks it and runs a program from there. BUILD, CPACK, DPKG_DEB: the
# build directory and the programs. WORK: a directory that is written.
file(REMOVE_RECURSE ${WORK})
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}: exit code ${code}\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

function(expect text pattern)
  if(NOT text MATCHES "${pattern}")
    message(FATAL_ERROR "found ${text}\nexpected ${pattern}")
  endif()
endfunction()

run(${CPACK} -G DEB --config ${BUILD}/CPackConfig.cmake -B ${WORK})
file(GLOB package ${WORK}/convoy_*.deb)
run(${DPKG_DEB} --field ${package} Depends)
expect("${out}" "libdnnl[0-9.]+ .*libopenblas")
run(${DPKG_DEB} --extract ${package} ${WORK}/root)
set(root ${WORK}/root/usr)
foreach(name train evaluate predict export report doctor launch bench-allreduce bench-step)
  run(${root}/bin/convoy-${name} --version)
  expect("${out}" "^convoy-${name} [0-9.]+\n")
endforeach()
foreach(file include/convoy/convoy.h include/convoy/version.h share/convoy/recipes/lenet-mnist.toml
             share/bash-completion/completions/convoy-train share/zsh/vendor-completions/_convoy-train
             share/doc/convoy/copyright share/doc/convoy/docs/README.md)
  if(NOT EXISTS ${root}/${file})
    message(FATAL_ERROR "the package has no /usr/${file}")
  endif()
endforeach()
run(${CMAKE_COMMAND} -E env CUDA_VISIBLE_DEVICES= ${root}/bin/convoy-train --config ${root}/share/convoy/recipes/lenet-mnist.toml
    --dataset shapes --device cpu --batch-size 16 --dry-run)
expect("${out}" "dry run: the loss of one batch is ")
