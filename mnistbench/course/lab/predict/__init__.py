"""What a student predicts before a lab: questions, answers, and how they compare with the lab."""
