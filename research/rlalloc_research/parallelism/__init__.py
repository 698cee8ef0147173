"""GPU count and data, model or hybrid parallelism: the choice of Dadizadeh Dargiry (2025), by table and by SAC."""
