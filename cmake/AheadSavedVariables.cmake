# Lists, for each autograd node of LibTorch's own, the members that are saved tensors, in the order in which the
# node unpacks them, which is that of their declaration. Nodes do not tell where those are that have hooks.
# The source includes the list as saved_variables.inc; it is compiled by itself, as it needs the largest of headers.
function(ahead_list_saved_variables source)
  set(header "${LibTorch_INCLUDE_DIR}/torch/csrc/autograd/generated/Functions.h")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
  file(STRINGS "${header}" lines
       REGEX "^struct TORCH_API [A-Za-z0-9_]+ |^  (std::vector<SavedVariable>|SavedVariable) [A-Za-z0-9_]+;")
  set(table "")
  set(node "")
  set(members "")
  foreach(line IN LISTS lines ITEMS "struct TORCH_API end ")
    if(line MATCHES "^struct TORCH_API ([A-Za-z0-9_]+) ")
      set(next "${CMAKE_MATCH_1}")
      if(members)
        string(APPEND table "AHEAD_NODE(${node}${members})\n")
      endif()
      set(node "${next}")
      set(members "")
    elseif(line MATCHES " ([A-Za-z0-9_]+);?$")
      string(APPEND members ", &${node}::${CMAKE_MATCH_1}")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/saved_variables.inc" CONTENT "${table}" @ONLY)
  set_source_files_properties("${source}" PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON INCLUDE_DIRECTORIES "${PROJECT_BINARY_DIR}/generated")
endfunction()
