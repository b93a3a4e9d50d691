"""Options and help of each verb, without their implementations."""
