"""Which attention to take: by a budget of time and memory, and by what one's own data are like."""
