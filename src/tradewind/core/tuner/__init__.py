"""What moves the weights of the pick: pure state machines that hear samples and give orders."""
