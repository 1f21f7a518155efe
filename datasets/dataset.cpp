// filled by the stage that brings it
